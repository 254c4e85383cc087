# What may leave.
package outlast.output

redact contains {"rule": "secrets", "reason": reason, "keep_original": false} if {
	patterns := {finding.pattern | some finding in input.findings; finding.kind == "secret"}
	count(patterns) > 0
	reason := sprintf("secrets were found: %s", [concat(", ", sort(patterns))])
}

quarantine contains {"rule": "personal-data", "reason": reason} if {
	total := sum([finding.count | some finding in input.findings; finding.kind == "personal"])
	total > 0
	reason := sprintf("%d places look like data about persons", [total])
}

deny contains {"rule": "too-many-files", "reason": "a job leaves at most 1000 files"} if {
	count(input.outcome.artifacts) > 1000
}
