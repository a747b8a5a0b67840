"""Sites, CEs and downtimes as GOCDB and CRIC describe them."""

from pilotage.core.topology.document import read_documents
from pilotage.core.topology.model import Downtime, ListedCe, ListedSite, Topology

__all__ = ["Downtime", "ListedCe", "ListedSite", "Topology", "read_documents"]
