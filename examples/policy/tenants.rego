# Helpers for tenants.
package outlast.lib.tenants

is_trusted(tenant) if data.tenants[tenant].trusted

limits(tenant) := data.tenants[tenant].limits

limits(tenant) := data.default_limits if not data.tenants[tenant].limits
