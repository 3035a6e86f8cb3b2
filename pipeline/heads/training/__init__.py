"""Training, for heads and for whatever else learns.

Read `training_job` first: one training from the dataset's splits to the saved head, with the
options of `training_options`. `task` is what a trained network fills in, `trainer` has the loop,
which is the same for all, and `checkpoints` the state after each epoch, from which a killed
training resumes. No architecture and no loss lives here.
"""
