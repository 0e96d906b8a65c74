"""Row programs as one kernel: softmax, norms, and what else reads whole rows again."""
