//! `outlast tenants`: tenants with their limits.

use anyhow::Result;
use api::{Page, TenantView};
use clap::Args;

use crate::context::Context;
use crate::exit;
use crate::paint::Paint;
use crate::table::{Align, Cell, Table};

const PAGE_TENANTS: usize = 500;

/// List tenants that have jobs or limits.
#[derive(Args)]
pub struct Options {
    /// Maximum number of tenants [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

pub async fn run(options: &Options, context: &Context) -> Result<u8> {
    let page = fetch(options.limit.unwrap_or(usize::MAX), context).await?;
    context.printer.print(&page, |page: &Page<TenantView>, paint| table(&page.items, paint))?;
    Ok(exit::DONE)
}

async fn fetch(limit: usize, context: &Context) -> Result<Page<TenantView>> {
    let mut items = Vec::new();
    let mut cursor = None;
    loop {
        let page_limit = (limit - items.len()).min(PAGE_TENANTS);
        let page = context.client.tenants(Some(page_limit), cursor.as_deref()).await?;
        items.extend(page.items);
        cursor = page.next_cursor;
        if items.len() >= limit || cursor.is_none() {
            return Ok(Page { items, next_cursor: cursor });
        }
    }
}

fn table(tenants: &[TenantView], paint: Paint) -> String {
    let mut table = Table::new(&[
        ("TENANT", Align::Left),
        ("LIVE", Align::Right),
        ("MAX LIVE", Align::Right),
        ("MAX RUNNING", Align::Right),
        ("SUBMITS PER SECOND", Align::Right),
    ]);
    for tenant in tenants {
        table.row([
            Cell::new(&tenant.tenant),
            Cell::new(tenant.live),
            Cell::option(tenant.limits.max_live),
            Cell::option(tenant.limits.max_running),
            Cell::option(tenant.limits.submits_per_second),
        ]);
    }
    table.render(paint)
}

#[cfg(test)]
mod tests {
    use api::TenantLimitsView;

    use super::*;

    #[test]
    fn a_missing_limit_is_a_dash() {
        let limits = TenantLimitsView { max_running: Some(2), ..TenantLimitsView::default() };
        let tenant = TenantView { tenant: "guests".to_owned(), live: 5, limits };
        let expected = "\
TENANT  LIVE  MAX LIVE  MAX RUNNING  SUBMITS PER SECOND
guests     5         -            2                   -
";
        assert_eq!(table(&[tenant], Paint::NONE), expected);
    }
}
