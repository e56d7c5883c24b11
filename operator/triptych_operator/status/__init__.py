"""What the resource's status says, as a pure function of what is observed. Time is passed in."""
