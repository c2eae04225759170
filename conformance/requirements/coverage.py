"""Is every requirement verified by a check, or excluded with a reason?

``python -m plumbline.conformance.requirements.coverage`` is a static look at the files: no server, no import
of a check. Prints one line for each problem, with the place and what to do, then one line of totals; exits 1
if there was a problem. ``make lint`` runs it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from plumbline.conformance.requirements.catalogue import Catalogue, CatalogueError
from plumbline.conformance.requirements.references import CheckReferences, check_references
from plumbline.conformance.targets.variants import VariantsError, amqp_variants, variants


def problems(
    catalogue: Catalogue, references: CheckReferences, known_variants: frozenset[str]
) -> Iterator[str]:
    """Everything that does not fit together, each with file:line and what to do."""
    yield from references.problems
    for check in references.checks:
        for reference in check.requirements:
            if reference.name not in catalogue.by_id:
                near = catalogue.near(reference.name)
                hint = f"did you mean {', '.join(near)}?" if near else "add it to conformance/requirements"
                yield f"{reference.where}: {reference.name} is not a requirement; {hint}"
        if check.variant is not None and check.variant.name not in known_variants:
            names = ", ".join(sorted(known_variants))
            place, variant = check.variant.where, check.variant.name
            yield f"{place}: no variant {variant!r} in variants.toml; there are: {names}"
    for requirement in catalogue.requirements:
        verifying = references.verifying(requirement.id)
        where = f"conformance/requirements/{requirement.where}"
        if requirement.excluded and verifying:
            check_where = verifying[0].where
            yield f"{where}: {requirement.id} is excluded and {check_where} verifies it; remove one"
        played = references.played(requirement.id)
        if requirement.sample and played is not None:
            yield (
                f"{where}: {requirement.id} has a sample, and {played.where} shows the exchange that is run; "
                "drop the sample: it is for requirements that only functions verify"
            )
        if not requirement.excluded and not verifying:
            yield (
                f"{where}: no check verifies {requirement.id} ({requirement.level}); "
                "name it in a trace or @verifies, or give the reason in excluded"
            )


def summary(catalogue: Catalogue, references: CheckReferences) -> str:
    """One line of totals."""
    verified = [row for row in catalogue.requirements if references.verifying(row.id)]
    excluded = [row for row in catalogue.requirements if row.excluded]
    return (
        f"{len(catalogue.requirements)} requirements: {len(verified)} verified, {len(excluded)} excluded; "
        f"{len(references.checks)} checks"
    )


def main() -> int:
    """Exit code 0, or 1 with the problems on stdout."""
    try:
        catalogue, known_variants = Catalogue.load(), frozenset((*variants(), *amqp_variants()))
        catalogue.published()
    except (CatalogueError, VariantsError) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    written = check_references()
    found = list(problems(catalogue, written, known_variants))
    for problem in found:
        sys.stdout.write(f"{problem}\n")
    sys.stdout.write(f"{summary(catalogue, written)}{f'; {len(found)} problems' if found else ''}\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
