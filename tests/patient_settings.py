"""Settings for tests with sources: on a busy machine a server may start more slowly than the default allows."""

from toolpost import Settings


class PatientSettings(Settings):
    """Settings that wait a minute for sources, unless a test says otherwise."""

    startup_wait_s: float = 60.0
