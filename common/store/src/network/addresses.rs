//! Addresses of services and slots. The replicas confirm an address before any pod learns it.

use redis::cmd;

use crate::reply::{RawFields, parse, read, unexpected, verdict};
use crate::scripts::{Call, address, addresses_free};
use crate::service::confirm::CONFIRM_TIMEOUT;
use crate::service::service_fields;
use crate::{Store, StoreError, keys};
use model::ids::{AppName, ServiceName};
use model::network::address::{AddressName, PoolAddress};
use redis_link::Durability;

/// About a millisecond of Redis.
const PAGE: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenAddress {
    Confirmed(PoolAddress),
    /// A failover could still give it to another name. Do not publish it; ask again.
    Unconfirmed,
    /// There is no such service, or its slot is not wanted, is beyond the limit per service, or is of a job.
    Missing,
    /// Each call tries other addresses.
    Full,
}

enum AddressReply {
    Number(u32, bool),
    Other(GivenAddress),
}

impl Store {
    /// Allocates an address if there is none.
    pub async fn address(&self, name: &AddressName) -> Result<GivenAddress, StoreError> {
        let given = |number| PoolAddress::from_number(number).map(GivenAddress::Confirmed);
        let impossible = |number: u32| unexpected("giving an address", &number.to_string());
        let (reply, durability) =
            self.link.durable_script(&address_call(name, None), CONFIRM_TIMEOUT).await?;
        let number = match address_reply(reply)? {
            AddressReply::Other(outcome) => return Ok(outcome),
            AddressReply::Number(number, true) => return given(number).ok_or_else(|| impossible(number)),
            AddressReply::Number(number, false) => number,
        };
        if matches!(durability, Durability::Unconfirmed { .. }) {
            return Ok(GivenAddress::Unconfirmed);
        }
        // Has no effect if the name was forgotten meanwhile and got another number.
        let confirm = address_call(name, Some(number));
        match address_reply(self.link.script(&confirm).await?)? {
            AddressReply::Number(same, true) if same == number => {
                given(number).ok_or_else(|| impossible(number))
            }
            AddressReply::Number(..) => Ok(GivenAddress::Unconfirmed),
            AddressReply::Other(outcome) => Ok(outcome),
        }
    }

    pub async fn address_holder(&self, address: PoolAddress) -> Result<Option<AddressName>, StoreError> {
        let number = address.number();
        let field = |name: &str| cmd("HGET").arg(keys::ADDRESSES).arg(name).to_owned();
        let name: Option<Vec<u8>> = self.link.query(&field(&format!("#{number}"))).await?;
        let name = name.and_then(|name| parse::<AddressName>(&name));
        let Some(name) = name else { return Ok(None) };
        // Both directions must agree, as in the script.
        let confirmed: Option<Vec<u8>> = self.link.query(&field(&name.to_string())).await?;
        Ok((confirmed == Some(number.to_string().into_bytes())).then_some(name))
    }

    pub async fn app_of_service(&self, service: &ServiceName) -> Result<Option<AppName>, StoreError> {
        let fields: Option<Vec<u8>> =
            self.link.query(cmd("HGET").arg(keys::service(service)).arg("fields")).await?;
        Ok(fields.and_then(|fields| service_fields::member(&serde_json::from_slice(&fields).ok()?, "app")))
    }

    /// Handles missing services and slots of one page. `cursor` is 0 at first; the next is `None` after the
    /// last page.
    pub async fn free_addresses(&self, cursor: u64) -> Result<(usize, Option<u64>), StoreError> {
        let mut scan = cmd("HSCAN");
        scan.arg(keys::ADDRESSES).arg(cursor).arg("COUNT").arg(PAGE);
        let (next, page): (u64, RawFields) = self.link.query(&scan).await?;
        let fields: Vec<String> =
            page.into_iter().filter_map(|(field, _)| String::from_utf8(field).ok()).collect();
        let mut freed = 0;
        // A small hash comes as one page, whatever its size.
        for piece in fields.chunks(PAGE) {
            freed += self.free_addresses_among(piece).await?;
        }
        Ok((freed, Some(next).filter(|next| *next != 0)))
    }

    async fn free_addresses_among(&self, fields: &[String]) -> Result<usize, StoreError> {
        let parsed = fields.iter().filter_map(|field| field.parse::<AddressName>().ok());
        let names: Vec<AddressName> = parsed.collect();
        let mut call = addresses_free::Head {
            addresses: keys::ADDRESSES,
            freed: keys::FREED_ADDRESSES,
            name_count: names.len(),
            slot_share: PoolAddress::SLOTS_OF_SERVICE,
            first: PoolAddress::FIRST,
            count: PoolAddress::COUNT,
        }
        .call();
        for name in &names {
            let service_key = keys::service(&name.service);
            call.add(addresses_free::Name { service_key, service: &name.service, slot: name.slot });
        }
        for number in fields.iter().filter_map(|field| field.strip_prefix('#')?.parse::<u32>().ok()) {
            call.add(addresses_free::Number { number });
        }
        read("freeing addresses", self.link.script(&call).await?)
    }

    /// Returns confirmed ones.
    pub async fn addresses(&self) -> Result<Vec<(AddressName, PoolAddress)>, StoreError> {
        let fields: RawFields = self.link.query(cmd("HGETALL").arg(keys::ADDRESSES)).await?;
        let mut fields: Vec<(String, String)> = fields
            .into_iter()
            .filter_map(|(field, value)| {
                Some((String::from_utf8(field).ok()?, String::from_utf8(value).ok()?))
            })
            .collect();
        fields.sort_unstable();
        let value_of = |field: &str| {
            let found = fields.binary_search_by(|(known, _)| known.as_str().cmp(field)).ok()?;
            Some(fields[found].1.as_str())
        };
        let address = |(name, number): &(String, String)| {
            let address = PoolAddress::from_number(number.parse().ok()?)?;
            (value_of(&format!("#{}", address.number())) == Some(name.as_str())).then_some(())?;
            Some((name.parse().ok()?, address))
        };
        Ok(fields.iter().filter_map(address).collect())
    }
}

fn address_call(name: &AddressName, confirmed: Option<u32>) -> Call<'static> {
    address::Head {
        service_key: keys::service(&name.service),
        addresses: keys::ADDRESSES,
        freed: keys::FREED_ADDRESSES,
        service: &name.service,
        slot: name.slot,
        confirmed,
        slot_share: PoolAddress::SLOTS_OF_SERVICE,
        first: PoolAddress::FIRST,
        count: PoolAddress::COUNT,
    }
    .call()
}

fn address_reply(reply: redis::Value) -> Result<AddressReply, StoreError> {
    let what = "giving an address";
    let (answer, rest) = verdict(what, reply)?;
    Ok(match answer.as_str() {
        "OK" => {
            let (number, confirmed): (u32, String) = read(what, redis::Value::Array(rest))?;
            AddressReply::Number(number, confirmed == "1")
        }
        "MISSING" => AddressReply::Other(GivenAddress::Missing),
        "FULL" => AddressReply::Other(GivenAddress::Full),
        other => return Err(unexpected(what, other)),
    })
}
