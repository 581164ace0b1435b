"""Reads the operations of a plan.json one by one; the file has them as columns.

Not here: their meaning (memory/plan/plan.h), how they are written (trainer/plan/plan_columns.h). Standard library only.
"""


def times_in_step(when, turns):
    """The number of turns, out of the `turns` of a step, in which an operation with this `when` works."""
    if turns == 1:
        return 1
    if when == "every":
        return turns
    words = when.split(", ")
    return ("first" in words or "waiting" in words) + ("middle" in words) * (turns - 2) + ("last" in words)


def operations(plan, shown=0):
    """[{id, kind, lane, when, times, of, micro_batch, micro_batches, bytes, waits [[id, turn]], begin_s, end_s}] for
    the `shown`-th of the turns that have times in the plan; `of` is a unit or a block, or None."""
    columns = plan["ops"]
    unit_s = columns["time_unit_s"]
    rows = []
    begin = 0
    for id_ in range(columns["count"]):
        of = columns["of"][id_]
        begin += columns["begin_delta"][shown][id_]
        duration = columns["duration"][shown][id_]
        row = dict(columns["classes"][columns["class"][id_]])
        row.update(id=id_, times=times_in_step(row["when"], columns["turns"]),
                   of=columns["names"][of] if of >= 0 else None, micro_batch=columns["micro_batch"][id_],
                   waits=[[id_ - wait, 0] if wait >= 0 else [-1 - wait, -1] for wait in columns["waits"][id_]],
                   begin_s=begin * unit_s, end_s=(begin + duration) * unit_s)
        rows.append(row)
    return rows
