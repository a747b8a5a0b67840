"""Checks of the systems outside that a policy names: batch systems, their reach, catalogues and storage."""

from __future__ import annotations

import re

from pilotage.core.errors import InvalidInput
from pilotage.core.mail import is_mail_address
from pilotage.core.policy.batch_systems import BATCH_SYSTEMS
from pilotage.core.policy.ce_attributes import attribute_mistakes
from pilotage.core.policy.ce_model import Ce
from pilotage.core.policy.model import Policy
from pilotage.core.policy.reach import RELAY, parse_reach
from pilotage.core.policy.refuser import Refuser, known_names
from pilotage.core.policy.storage_model import EVERY_SITE, PLAIN_NAME


def check_batch_options(policy: Policy, refuse: Refuser) -> None:
    """Refuse mistakes in the tables of batch systems."""
    for name, ce in policy.ces.items():
        for system, options in BATCH_SYSTEMS.items():
            # A table that is not there has no mistakes, unless the CE is of its type.
            if ce.type != system and getattr(ce, system) == options():
                continue
            for key, reason in getattr(ce, system).mistakes():
                refuse(f"CE {name}: {reason}", "ces", name, system, key)
        if ce.type != "local" and (limit := ce.batch_options().largest_pilot) is not None:
            most, reason = limit
            if ce.pilot_processors > most:
                refuse(f"CE {name}: {reason}", "ces", name, "pilot_processors")
        _check_reach(name, ce, refuse)
        for keys, reason, hint in attribute_mistakes(name, ce):
            refuse(f"CE {name}: {reason}", "ces", name, *keys, hint=hint)
        for attribute, reason, hint in ce.forward_table.mistakes(ce.forward):
            refuse(f"CE {name}: forward: {reason}", "ces", name, "forward", attribute, hint=hint)
        hook = ce.forward_hook
        if hook and (ce.type == "local" or not hook.startswith("/") or not hook.isprintable()):
            hint = "name an absolute path of a program; a local CE has no flags and no hook"
            refuse(f"CE {name}: forward_hook cannot be used", "ces", name, "forward_hook", hint=hint)


def check_catalogues(policy: Policy, refuse: Refuser) -> None:
    """Refuse mistakes in the tables of catalogues."""
    for name, catalogue in policy.catalogues.items():
        here = ("catalogues", name)
        if not PLAIN_NAME.fullmatch(name):
            hint = "it begins the names of data sets: use letters, digits, - and _"
            refuse(f"the name {name[:80]!r} of a catalogue cannot be used", *here, hint=hint)
        for key, reason in catalogue.catalogue_options().mistakes():
            refuse(f"catalogue {name}: {reason}", *here, catalogue.type, key)
        for place, row in catalogue.places.items():
            if row.site != "*" and row.site not in policy.sites:
                message = f"catalogue {name}: {place}: there is no site {row.site}"
                refuse(message, *here, "places", place, "site", hint=known_names(policy.sites))
            if row.prefix and not row.prefix.startswith("/") and "://" not in row.prefix:
                message = f"catalogue {name}: {place}: {row.prefix!r} is neither an absolute path nor a URL"
                refuse(message, *here, "places", place, "prefix")


def check_storage(policy: Policy, refuse: Refuser) -> None:
    """Refuse mistakes in the tables of storage that is no folder."""
    addresses: dict[str, str] = {}
    for name, place in policy.storage.items():
        here = ("storage", name)
        if not PLAIN_NAME.fullmatch(name):
            hint = "use letters, digits, - and _"
            refuse(f"the name {name[:80]!r} of a storage place cannot be used", *here, hint=hint)
        for key, reason in place.options.mistakes():
            refuse(f"storage {name}: {reason}", *here, place.type, key)
        for site in place.sites:
            if site != EVERY_SITE and site not in policy.sites:
                message = f"storage {name}: there is no site {site}"
                refuse(message, *here, "sites", hint=known_names(policy.sites))
        if place.address in addresses:
            refuse(f"storage {name} has the address of storage {addresses[place.address]}", *here)
        addresses[place.address] = name
    services = {name: place for name, place in policy.storage.items() if place.type == "s3"}
    for key, chosen in (("storage", policy.sandboxes.storage), ("inputs", policy.sandboxes.inputs)):
        if chosen and chosen not in services:
            message = f"sandboxes: there is no storage {chosen} of type s3"
            refuse(message, "sandboxes", key, hint=known_names(services))


_SMTP_SERVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(:[1-9]\d{0,4})?\Z")


def check_mail(policy: Policy, refuse: Refuser) -> None:
    """Refuse addresses that cannot get or send mail."""
    mail = policy.mail
    if mail.server and not _SMTP_SERVER.match(mail.server):
        refuse(f"mail: {mail.server[:80]!r} is no server", "mail", "server", hint="write HOST or HOST:PORT")
    if (mail.server or mail.sender) and not is_mail_address(mail.sender):
        refuse(f"mail: {mail.sender[:80]!r} is no address", "mail", "sender", hint="write NAME@HOST")
    for ending in mail.recipients:
        if "@" not in ending or not is_mail_address(f"a{ending[ending.index('@') :]}"):
            hint = "write @HOST, or a whole address"
            refuse(f"mail: {ending[:80]!r} is no end of an address", "mail", "recipients", hint=hint)
    for name, user in policy.users.items():
        if user.mail and not is_mail_address(user.mail):
            refuse(f"users {name}: {user.mail[:80]!r} is no address", "users", name, "mail")


def check_issuers(policy: Policy, refuse: Refuser) -> None:
    """Refuse mistakes in the tables of issuers."""
    urls: dict[str, str] = {}
    for name, issuer in policy.issuers.items():
        here = ("issuers", name)
        if not PLAIN_NAME.fullmatch(name):
            refuse(
                f"the name {name[:80]!r} of an issuer cannot be used",
                *here,
                hint="use letters, digits, - and _",
            )
        for key, reason in issuer.mistakes():
            refuse(f"issuer {name}: {reason}", *here, key)
        for value, group in issuer.groups.items():
            if group not in policy.groups:
                message = f"issuer {name}: there is no group {group}"
                refuse(message, *here, "groups", value, hint=known_names(policy.groups))
        for value, user in issuer.users.items():
            if user not in policy.users and issuer.new_users == "refuse":
                message = f"issuer {name}: there is no user {user}"
                refuse(message, *here, "users", value, hint=known_names(policy.users))
        if issuer.url in urls:
            refuse(f"issuer {name} has the url of issuer {urls[issuer.url]}", *here, "url")
        urls[issuer.url] = name


def _check_reach(name: str, ce: Ce, refuse: Refuser) -> None:
    if ce.reach and ce.type == "local":
        hint = "name the type of a batch system on that host, or `machines` for machines without one"
        refuse(f"CE {name}: a local CE is the server's own machine", "ces", name, "reach", hint=hint)
    if ce.reach:
        try:
            parse_reach(ce.reach)
        except InvalidInput as error:
            refuse(f"CE {name}: reach: {error.message}", "ces", name, "reach", hint=error.hint)
    if ce.reach and ce.type != "local" and ce.batch_options().own_reaches:
        hint = "remove reach"
        refuse(f"CE {name}: its table names the hosts", "ces", name, "reach", hint=hint)
    if ce.relay and not ce.reach:
        hint = 'set reach = "ssh HOST", or remove relay'
        refuse(f"CE {name}: a relay runs on the host of `reach`", "ces", name, "relay", hint=hint)
    if ce.relay and not RELAY.fullmatch(ce.relay):
        hint = 'write "auto", HOST or HOST:PORT'
        refuse(f"CE {name}: {ce.relay[:80]!r} is no relay", "ces", name, "relay", hint=hint)
