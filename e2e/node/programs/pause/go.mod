module triptych.dev/e2e/node/pause

go 1.26.0
