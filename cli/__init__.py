"""Where the packages meet: what one of them is handed of the others.

``Parts`` hands verify and explore what they may not import: the embedded broker, real servers, reports.
``Stands`` hands gate and observe reference brokers with watching proxies.
What they are made of is imported when it is needed.
"""
