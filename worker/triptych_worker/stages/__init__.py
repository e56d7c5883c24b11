"""The stages: admit -> plan -> forward -> publish. They see neither protobuf nor gRPC."""
