"""Steps, the states that they make, and the schedules that people write.

Law: a state is the replay of its steps; no statement, no bound, no program.

In reading order:

    first    region, step, state, loop_value
    steps    loop_steps, place_steps, storage_steps, stage_steps
    then     replay, dag, schedule
"""
