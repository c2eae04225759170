"""Every check has a broken twin: each defect of the reference broker must turn its requirements red."""
