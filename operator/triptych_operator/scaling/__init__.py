"""How many pods a tier should have, as pure functions of what is measured and observed.

An autoscaler of the cluster sets the numbers. Here is what it may do (``bounds``), what it would do
(``advice``), which tier holds up the others (``limiting``), whether encoders are needed at all
(``rest``) and which pods go first (``departures``), all from the resource's ``policy``.
"""
