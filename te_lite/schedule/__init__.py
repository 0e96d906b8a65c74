"""Steps, the states that they make, and the schedules that people write.

Law: a state is the replay of its steps; no statement, no bound, no program.

In reading order:

    files    region, step, step_json, state, loop_value, apply_loop, apply_stage, replay, dag, thread_axes, schedule
"""
