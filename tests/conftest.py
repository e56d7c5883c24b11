"""What all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine is no reason to fail: properties are judged by their answers; time is measured in
# bench/ alone.
settings.register_profile("triptych", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("triptych")
