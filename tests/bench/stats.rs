//! Medians and quantiles.

use serde_json::{Value, json};

#[derive(Debug, Clone, Default)]
pub struct Series(Vec<f64>);

impl FromIterator<f64> for Series {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl Series {
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Nearest rank; NaN without values.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub fn min(&self) -> f64 {
        self.quantile(0.0)
    }

    pub fn max(&self) -> f64 {
        self.quantile(1.0)
    }

    /// As `1.23 (1.10–1.40)`.
    pub fn show(&self, digits: usize) -> String {
        if self.0.len() == 1 {
            return format!("{:.digits$}", self.median());
        }
        format!("{:.digits$} ({:.digits$}–{:.digits$})", self.median(), self.min(), self.max())
    }

    pub fn json(&self) -> Value {
        json!({ "median": self.median(), "min": self.min(), "max": self.max(), "runs": self.len() })
    }
}
