"""The calls of a pilot: its messages (wire/pilot.py), and its files as bytes."""

from __future__ import annotations

from .call import ANYBODY, ENROLLING, PILOT, ApiCall, NoRequest, Nothing
from .pilot import EnrolRequest, EnrolResponse, ExchangeRequest, ExchangeResponse
from .probe import ProbeAnswer, ProbeReport

ENROL = ApiCall("POST", "/v1/pilot/enrol", EnrolRequest, EnrolResponse, ENROLLING)
EXCHANGE = ApiCall("POST", "/v1/pilot/exchange", ExchangeRequest, ExchangeResponse, PILOT)
PROBE = ApiCall("POST", "/v1/pilot/probe", ProbeReport, ProbeAnswer, PILOT)
READ_INPUT = ApiCall("GET", "/v1/pilot/jobs/{job}/inputs/{digest}", NoRequest, bytes, PILOT)
READ_JOB_OUTPUT = ApiCall("GET", "/v1/pilot/jobs/{job}/outputs/{name:path}", NoRequest, bytes, PILOT)
STORE_OUTPUT = ApiCall(
    "PUT", "/v1/pilot/jobs/{job}/{epoch}/outputs/{name:path}", NoRequest, Nothing, PILOT, status=201
)
STORE_STREAM = ApiCall(
    "PUT", "/v1/pilot/jobs/{job}/{epoch}/streams/{stream}", NoRequest, Nothing, PILOT, status=201
)
STORE_TAIL = ApiCall("POST", "/v1/pilot/jobs/{job}/tail", NoRequest, Nothing, PILOT, status=204)
READ_PROGRAM = ApiCall("GET", "/v1/pilot.pyz", NoRequest, bytes, ANYBODY)
