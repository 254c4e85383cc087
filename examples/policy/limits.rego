# What each tenant may use. The numbers are in tenants.json.
package outlast.job

import data.outlast.lib.tenants

constrain contains {
	"rule": "tenant-limits",
	"reason": sprintf("the limits of tenant %s", [input.tenant]),
	"max_runtime_ms": limits.max_runtime_ms,
	"max_retries": limits.max_retries,
} if {
	limits := tenants.limits(input.tenant)
}

deny contains {"rule": "large-artifacts", "reason": reason} if {
	limit := tenants.limits(input.tenant).max_artifact_bytes
	input.job.limits.output_bytes > limit
	reason := sprintf("it asks to keep %d bytes, tenant %s may keep %d", [
		input.job.limits.output_bytes,
		input.tenant,
		limit,
	])
}
