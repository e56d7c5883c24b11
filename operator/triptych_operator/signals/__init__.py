"""What the pods of the tiers measure, as autoscalers, status and `triptych top` read it."""
