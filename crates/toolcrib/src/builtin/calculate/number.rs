//! A number that stays an exact integer as long as it can.

use serde_json::{Number as JsonNumber, Value};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Integer(i128),
    Real(f64),
}

/// Why there is no result, for the agent.
pub(super) type NumberResult = Result<Number, String>;

/// Beyond it a float no longer tells neighbouring integers apart.
const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;

impl Number {
    pub(super) fn to_f64(self) -> f64 {
        match self {
            Number::Integer(integer) => integer as f64,
            Number::Real(real) => real,
        }
    }

    /// A float as a number: an integer where it is one exactly, an error where it is none.
    pub(super) fn from_f64(real: f64) -> NumberResult {
        if real.is_nan() {
            return Err("the result is not a real number".into());
        }
        if real.is_infinite() {
            return Err("the result is too large".into());
        }
        Ok(if real.fract() == 0.0 && real.abs() <= MAX_EXACT_FLOAT {
            Number::Integer(real as i128)
        } else {
            Number::Real(real)
        })
    }

    pub(super) fn add(self, other: Number) -> NumberResult {
        self.apply_exact_or_float(other, i128::checked_add, |one, other| one + other)
    }

    pub(super) fn subtract(self, other: Number) -> NumberResult {
        self.apply_exact_or_float(other, i128::checked_sub, |one, other| one - other)
    }

    pub(super) fn multiply(self, other: Number) -> NumberResult {
        self.apply_exact_or_float(other, i128::checked_mul, |one, other| one * other)
    }

    pub(super) fn divide(self, other: Number) -> NumberResult {
        if other.to_f64() == 0.0 {
            return Err("division by zero".into());
        }
        let whole = |one: i128, other: i128| if one.checked_rem(other)? == 0 { one.checked_div(other) } else { None };
        self.apply_exact_or_float(other, whole, |one, other| one / other)
    }

    pub(super) fn remainder(self, other: Number) -> NumberResult {
        if other.to_f64() == 0.0 {
            return Err("division by zero".into());
        }
        self.apply_exact_or_float(other, i128::checked_rem, |one, other| one % other)
    }

    pub(super) fn power(self, exponent: Number) -> NumberResult {
        if self.to_f64() == 0.0 && exponent.to_f64() < 0.0 {
            return Err("division by zero: zero to a negative power".into());
        }
        let integral = |base: i128, exponent: i128| base.checked_pow(u32::try_from(exponent).ok()?);
        self.apply_exact_or_float(exponent, integral, f64::powf)
    }

    pub(super) fn negate(self) -> NumberResult {
        Number::Integer(0).subtract(self)
    }

    pub(super) fn absolute(self) -> NumberResult {
        if self.to_f64() < 0.0 { self.negate() } else { Ok(self) }
    }

    /// Half away from zero.
    pub(super) fn round(self, digits: Number) -> NumberResult {
        match (self, digits) {
            (Number::Integer(_), Number::Integer(0..)) => Ok(self),
            (_, Number::Integer(digits @ -30..=30)) => {
                let scale = 10_f64.powi(digits as i32);
                let scaled = self.to_f64() * scale;
                // So large that it has no such digits.
                if scaled.is_finite() { Number::from_f64(scaled.round() / scale) } else { Ok(self) }
            }
            _ => Err("`round` takes whole digits from -30 to 30".into()),
        }
    }

    /// Whole numbers as such, others rounded to 15 significant digits, which hides what binary cannot say (0.1 + 0.2).
    pub(super) fn to_json(self) -> Value {
        match self {
            Number::Integer(integer) => match JsonNumber::from_i128(integer) {
                Some(number) => Value::Number(number),
                None => Value::String(integer.to_string()),
            },
            Number::Real(real) => {
                let rounded: f64 = format!("{real:.14e}").parse().unwrap_or(real);
                match Number::from_f64(rounded) {
                    Ok(Number::Integer(integer)) => Number::Integer(integer).to_json(),
                    _ => JsonNumber::from_f64(rounded).map_or(Value::Null, Value::Number),
                }
            }
        }
    }

    /// In integers while both are and the result fits, else in floats.
    fn apply_exact_or_float(
        self,
        other: Number,
        integers: impl Fn(i128, i128) -> Option<i128>,
        reals: impl Fn(f64, f64) -> f64,
    ) -> NumberResult {
        if let (Number::Integer(one), Number::Integer(other)) = (self, other)
            && let Some(result) = integers(one, other)
        {
            return Ok(Number::Integer(result));
        }
        Number::from_f64(reals(self.to_f64(), other.to_f64()))
    }
}
