"""Matchmaking of computing elements by ClassAds: which CE can run a job, in which order, and why not. Pure.

Facts:
    glue               the attributes of the GLUE schema: kind, unit, and who fixes the value
    information        the facts about one CE and its classes of hosts
    host_classes       equal hosts as one class; the least values of all classes
    host_values        attributes that a site has written into features and complexes
    published          the facts of the batch system, completed and overridden by the policy
Ads:
    ce_ad, ad_text     the ad of a CE, from its facts or from a text
    requester_ad       the ad of the identity that submits
    new_pilots         a CE for pilots that have not started
Match:
    match              one requester with one CE: the rule
    broker             many requesters with many CEs: the same answers, each computed once
    numbered_ads       ads whose values have numbers; the attributes of an expression
    ad_columns         ads grouped by the values that an expression refers to
    truth_columns      the truth of an expression in many ads at once
    answers            the answers that are kept
Explanation:
    explanation        the sub-expressions that said no
    ce_answer          the answer for one CE with its explanation
    seen_attributes    the values that an expression saw, and names near to a missing one
    misspelt           names that resemble one of the schema
"""
