# Rules for results.
package outlast.output

redact contains {"rule": "secrets", "reason": reason, "keep_original": false} if {
	patterns := {finding.pattern | some finding in input.findings; finding.kind == "secret"}
	count(patterns) > 0
	reason := sprintf("secrets found: %s", [concat(", ", sort(patterns))])
}

quarantine contains {"rule": "personal-data", "reason": reason} if {
	total := sum([finding.count | some finding in input.findings; finding.kind == "personal"])
	total > 0
	reason := sprintf("%d matches of personal data", [total])
}

deny contains {"rule": "too-many-files", "reason": "a job may have at most 1000 artifacts"} if {
	count(input.outcome.artifacts) > 1000
}
