module kai-anywhere/tests/support/programs/pod-security-fixtures

go 1.26.0

require k8s.io/pod-security-admission v0.36.3
