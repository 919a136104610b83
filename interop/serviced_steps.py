"""The steps of the serviced tables, in order.

First lakewright services what it has written, and Hudi goes on with its own compaction, clean and
archiving. Then each executes the plans of the other, finishes what a dead process of Hudi's left,
and restores the savepoint of the other. Steps that only write are not followed by questions:
`interop.keyed` asks them.
"""

from __future__ import annotations

from interop import serviced_ours as ours
from interop import serviced_theirs as theirs
from interop.keyed_steps import Step, delete_keys, first, hudi_upsert, upsert, upsert_late
from interop.serviced_table import ServicedTable
from interop.serviced_theirs import Does


def _ours(name: str, does: Does, *, asked: bool = True) -> Step[ServicedTable]:
    return Step(name, "lakewright", does, asked)


def _theirs(name: str, does: Does, *, asked: bool = True) -> Step[ServicedTable]:
    return Step(name, "Hudi", does, asked)


def _upsert(order: int, stride: int = 2) -> Does:
    """Newer versions of some rows, and one new row: every new one may be a file group."""
    return upsert(order, stride, new=1)


STEPS: tuple[Step[ServicedTable], ...] = (
    _ours("bulk_insert", first, asked=False),
    _ours("upsert", _upsert(20), asked=False),
    _ours("upsert of older rows", upsert_late, asked=False),
    _ours("upsert with wider and new columns", ours.upsert_evolved, asked=False),
    _ours("delete by key", delete_keys),
    _theirs("Hudi compacts a copy by itself", theirs.compacts_copy, asked=False),
    _ours("compaction", ours.compaction),
    _ours("savepoint", ours.savepoint, asked=False),
    _ours("upsert behind the savepoint", _upsert(70), asked=False),
    _ours("second compaction", ours.compaction, asked=False),
    _ours("second upsert behind the savepoint", _upsert(80, stride=3), asked=False),
    _ours("clean beside the savepoint", ours.clean_beside_savepoint),
    _theirs("Hudi upserts, compacts and cleans", theirs.services_beside_savepoint),
    _theirs("Hudi deletes the savepoint", theirs.lets_go, asked=False),
    _ours("upsert without the savepoint", _upsert(110), asked=False),
    _ours("third compaction", ours.compaction, asked=False),
    _ours("clean without the savepoint", ours.clean),
    _ours("archive", ours.archive_and_ask),
    _ours("upsert before Hudi archives", _upsert(150), asked=False),
    _ours("second upsert before Hudi archives", _upsert(160, stride=3), asked=False),
    _theirs("Hudi upserts, compacts, cleans and archives", theirs.archives(200)),
    _ours("upsert after it", _upsert(210), asked=False),
    _ours("all services", ours.all_services),
    _ours("upsert before a plan", _upsert(212), asked=False),
    _ours("plan of a compaction", ours.plan_compaction, asked=False),
    _ours("upsert over the plan", _upsert(214, stride=3), asked=False),
    _theirs("Hudi executes the compaction", theirs.compacts_by_plan),
    _theirs("Hudi upserts and plans a compaction", theirs.plans_compaction),
    _ours("upsert over Hudi's plan", _upsert(230, stride=3), asked=False),
    _ours("compaction by Hudi's plan", ours.compact_by_plan),
    _ours("plan of a clean", ours.plan_clean, asked=False),
    _theirs("Hudi executes the clean", theirs.cleans_by_plan),
    _ours("upsert before Hudi's plan of a clean", _upsert(240), asked=False),
    _ours("compaction before Hudi's plan of a clean", ours.compaction, asked=False),
    _ours("second upsert before Hudi's plan of a clean", _upsert(242), asked=False),
    _theirs("Hudi plans a clean", theirs.plans_clean, asked=False),
    _ours("clean by Hudi's plan", ours.clean_by_plan),
    _theirs("Hudi dies writing and plans a rollback", theirs.dies),
    _ours("clean with Hudi's rollback", ours.clean_after_death),
    _ours("second savepoint", ours.savepoint, asked=False),
    _ours("upsert behind the second savepoint", _upsert(310), asked=False),
    _ours("all services beside the second savepoint", ours.services_beside_savepoint),
    _theirs("Hudi restores the second savepoint", theirs.restores),
    _ours("upsert after the restore", _upsert(320), asked=False),
    _ours("deletion of the second savepoint", ours.let_go, asked=False),
    _ours("all services after the restore", ours.all_services),
    _theirs("Hudi upserts before a rollback", theirs.upserts_for_nothing, asked=False),
    _ours("rollback of our commit and of Hudi's", ours.roll_back),
    _theirs("Hudi makes a savepoint", theirs.saves, asked=False),
    _theirs("Hudi upserts behind its savepoint", hudi_upsert(360), asked=False),
    _ours("all services beside Hudi's savepoint", ours.services_beside_savepoint),
    _theirs("Hudi upserts again behind its savepoint", hudi_upsert(370), asked=False),
    _ours("restore of Hudi's savepoint", ours.restore),
    _ours("deletion of Hudi's savepoint", ours.let_go, asked=False),
    _ours("upsert before the end", _upsert(380), asked=False),
    _ours("second upsert before the end", _upsert(390, stride=3), asked=False),
    _theirs("Hudi upserts, compacts, cleans and archives at the end", theirs.archives(400)),
    _ours("upsert at the end", _upsert(410), asked=False),
    _ours("all services at the end", ours.all_services),
)
