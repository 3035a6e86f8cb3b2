"""Training of heads and language models.

Read `training_job` first: one training, from the dataset's splits to the saved head. `task`
defines what a trained network provides, `trainer` has the training loop, and `checkpoints` saves
the state after each epoch, from which a killed training resumes.
"""
