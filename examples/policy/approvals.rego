# Approvals for protected topics.
package outlast.job

require_approval contains {"rule": "protected-topic", "reason": reason} if {
	input.topic in data.protected_topics
	reason := sprintf("topic %s is protected: an operator must approve it", [input.topic])
}

require_approval contains {"rule": "production-database", "reason": "the job writes to the production database"} if {
	input.labels.env == "production"
	startswith(input.topic, "database.")
}
