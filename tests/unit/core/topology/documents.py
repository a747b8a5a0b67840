"""Documents in the forms of GOCDB and CRIC, of sites that do not exist."""

GOCDB_SITES = """<?xml version="1.0" encoding="UTF-8"?>
<results>
  <SITE ID="1" PRIMARY_KEY="1G0" NAME="NORTH-T2">
    <PRIMARY_KEY>1G0</PRIMARY_KEY><SHORT_NAME>NORTH-T2</SHORT_NAME><COUNTRY>Norway</COUNTRY>
    <PRODUCTION_INFRASTRUCTURE>Production</PRODUCTION_INFRASTRUCTURE>
    <CERTIFICATION_STATUS>Certified</CERTIFICATION_STATUS>
  </SITE>
  <SITE ID="2" PRIMARY_KEY="2G0" NAME="OLD-T3">
    <SHORT_NAME>OLD-T3</SHORT_NAME><PRODUCTION_INFRASTRUCTURE>Production</PRODUCTION_INFRASTRUCTURE>
    <CERTIFICATION_STATUS>Closed</CERTIFICATION_STATUS>
  </SITE>
  <SITE><SHORT_NAME></SHORT_NAME></SITE>
</results>
"""

GOCDB_SERVICES = """<?xml version="1.0" encoding="UTF-8"?>
<results>
  <SERVICE_ENDPOINT PRIMARY_KEY="3G0">
    <HOSTNAME>ce1.north.example</HOSTNAME><SERVICE_TYPE>ARC-CE</SERVICE_TYPE>
    <IN_PRODUCTION>Y</IN_PRODUCTION><NODE_MONITORED>Y</NODE_MONITORED><SITENAME>NORTH-T2</SITENAME>
    <URL>https://ce1.north.example:443/arex</URL>
  </SERVICE_ENDPOINT>
  <SERVICE_ENDPOINT PRIMARY_KEY="4G0">
    <HOSTNAME>ce2.north.example</HOSTNAME><SERVICE_TYPE>org.opensciencegrid.htcondorce</SERVICE_TYPE>
    <IN_PRODUCTION>Y</IN_PRODUCTION><NODE_MONITORED>Y</NODE_MONITORED><SITENAME>NORTH-T2</SITENAME><URL/>
  </SERVICE_ENDPOINT>
  <SERVICE_ENDPOINT PRIMARY_KEY="5G0">
    <HOSTNAME>old.north.example</HOSTNAME><SERVICE_TYPE>CREAM-CE</SERVICE_TYPE>
    <IN_PRODUCTION>N</IN_PRODUCTION><NODE_MONITORED>Y</NODE_MONITORED><SITENAME>NORTH-T2</SITENAME>
  </SERVICE_ENDPOINT>
  <SERVICE_ENDPOINT PRIMARY_KEY="6G0">
    <HOSTNAME>se.north.example</HOSTNAME><SERVICE_TYPE>SRM</SERVICE_TYPE>
    <IN_PRODUCTION>Y</IN_PRODUCTION><NODE_MONITORED>Y</NODE_MONITORED><SITENAME>NORTH-T2</SITENAME>
  </SERVICE_ENDPOINT>
</results>
"""


def gocdb_downtime(
    host: str, start: float, end: float, severity: str = "OUTAGE", kind: str = "ARC-CE"
) -> str:
    """The answer of get_downtime with one downtime of NORTH-T2."""
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<results>
  <DOWNTIME ID="7" PRIMARY_KEY="7G0" CLASSIFICATION="SCHEDULED">
    <PRIMARY_KEY>7G0</PRIMARY_KEY><HOSTNAME>{host}</HOSTNAME><SERVICE_TYPE>{kind}</SERVICE_TYPE>
    <HOSTED_BY>NORTH-T2</HOSTED_BY><SEVERITY>{severity}</SEVERITY><DESCRIPTION>new
 cooling</DESCRIPTION><START_DATE>{int(start)}</START_DATE><END_DATE>{int(end)}</END_DATE>
  </DOWNTIME>
</results>
"""


GOCDB_NESTED_DOWNTIME = """<results>
  <DOWNTIME ID="8" PRIMARY_KEY="8G0" CLASSIFICATION="UNSCHEDULED">
    <SEVERITY>OUTAGE</SEVERITY><DESCRIPTION>power</DESCRIPTION><START_DATE>1000</START_DATE><END_DATE>2000</END_DATE>
    <SERVICES>
      <SERVICE><HOSTNAME>ce1.north.example</HOSTNAME><SERVICE_TYPE>ARC-CE</SERVICE_TYPE>
        <HOSTED_BY>NORTH-T2</HOSTED_BY></SERVICE>
      <SERVICE><HOSTNAME>ce2.north.example</HOSTNAME><SERVICE_TYPE>org.opensciencegrid.htcondorce</SERVICE_TYPE>
        <HOSTED_BY>NORTH-T2</HOSTED_BY></SERVICE>
      <SERVICE><HOSTNAME>se.north.example</HOSTNAME><SERVICE_TYPE>SRM</SERVICE_TYPE>
        <HOSTED_BY>NORTH-T2</HOSTED_BY></SERVICE>
    </SERVICES>
  </DOWNTIME>
</results>
"""

CRIC_SITES = """{
  "NORTH-T2": {"name": "NORTH-T2", "country": "Norway", "rc_tier_level": 2, "state": "ACTIVE"},
  "OLD-T3": {"name": "OLD-T3", "country": "Italy", "rc_tier_level": 3, "state": "DISABLED"}
}"""

CRIC_SERVICES = """{
  "NORTH-T2-CE-ce1": {"type": "CE", "flavour": "ARC-CE", "endpoint": "ce1.north.example:443", "rcsite": "NORTH-T2",
    "state": "ACTIVE", "status": "production"},
  "NORTH-T2-CE-ce2": {"type": "CE", "flavour": "HTCONDOR-CE", "endpoint": "https://ce2.north.example:9619",
    "rcsite": {"name": "NORTH-T2"}, "state": "ACTIVE"},
  "NORTH-T2-SE": {"type": "SE", "flavour": "XROOTD", "endpoint": "root://se.north.example", "rcsite": "NORTH-T2"},
  "NORTH-T2-CE-old": {"type": "CE", "flavour": "CREAM-CE", "endpoint": "old.north.example", "rcsite": "NORTH-T2",
    "state": "DISABLED"},
  "broken": {"type": "CE", "flavour": "ARC-CE", "endpoint": "https://[", "rcsite": null}
}"""

CRIC_DOWNTIMES = """{
  "NORTH-T2": {"7": {"severity": "OUTAGE", "start_time": "2026-11-26T01:00:00", "end_time": "2026-11-26T02:00:00",
    "affected_services": "ARC-CE, SRM", "description": "new cooling"},
   "8": {"severity": "WARNING", "start_time": "2026-11-26T01:00:00", "end_time": "2026-11-26T09:00:00"},
   "9": {"severity": "OUTAGE", "start_time": "2026-11-26T01:00:00", "end_time": "2026-11-26T09:00:00",
    "affected_services": "SRM"},
   "10": {"severity": "OUTAGE", "start_time": "soon", "end_time": null}}
}"""
