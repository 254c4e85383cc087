# Limits of tenants. The numbers are in tenants.json.
package outlast.job

import data.outlast.lib.tenants

constrain contains {
	"rule": "tenant-limits",
	"reason": sprintf("limits of tenant %s", [input.tenant]),
	"max_runtime_ms": limits.max_runtime_ms,
	"max_retries": limits.max_retries,
} if {
	limits := tenants.limits(input.tenant)
}

deny contains {"rule": "large-artifacts", "reason": reason} if {
	limit := tenants.limits(input.tenant).max_artifact_bytes
	input.job.limits.output_bytes > limit
	reason := sprintf("the job requests %d bytes of output; the limit of tenant %s is %d", [
		input.job.limits.output_bytes,
		input.tenant,
		limit,
	])
}
