//! Number that stays an exact integer as long as possible.
//!
//! Integers have 128 bits. An operation on two integers gives an integer if the exact result is one and fits;
//! everything else is computed in 64-bit floats, and a float that is a whole number becomes an integer again:
//!
//! ```text
//! 6 / 3 = 2        exact               7 / 2 = 3.5        float
//! 2^100            exact               2^200 = 1.60693804425899e60
//! ```

use serde_json::{Number as JsonNumber, Value};

/// Operand or result of a calculation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    /// Exact.
    Integer(i128),
    /// Anything else; never NaN or infinite.
    Real(f64),
}

/// Result of an operation; the error is a message for the agent.
pub(super) type NumberResult = Result<Number, String>;

/// 2^53: beyond it a float cannot represent every integer.
const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;

impl Number {
    /// Converts to a float; large integers are rounded.
    pub(super) fn to_f64(self) -> f64 {
        match self {
            Number::Integer(integer) => integer as f64,
            Number::Real(real) => real,
        }
    }

    /// Converts a float: to an integer if it is exactly one. NaN and infinity are errors.
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

    /// Exact while the result fits into 128 bits, else a float. The same holds for subtraction and multiplication.
    pub(super) fn add(self, other: Number) -> NumberResult {
        self.apply_exact_or_float(other, i128::checked_add, |a, b| a + b)
    }

    pub(super) fn subtract(self, other: Number) -> NumberResult {
        self.apply_exact_or_float(other, i128::checked_sub, |a, b| a - b)
    }

    pub(super) fn multiply(self, other: Number) -> NumberResult {
        self.apply_exact_or_float(other, i128::checked_mul, |a, b| a * b)
    }

    /// Exact if the division has no remainder.
    pub(super) fn divide(self, other: Number) -> NumberResult {
        // Before dividing: a float division would give infinity, whose message says less.
        if other.to_f64() == 0.0 {
            return Err("division by zero".into());
        }
        let exact_quotient = |a: i128, b: i128| if a.checked_rem(b)? == 0 { a.checked_div(b) } else { None };
        self.apply_exact_or_float(other, exact_quotient, |a, b| a / b)
    }

    /// Has the sign of the dividend.
    pub(super) fn remainder(self, other: Number) -> NumberResult {
        if other.to_f64() == 0.0 {
            return Err("division by zero".into());
        }
        self.apply_exact_or_float(other, i128::checked_rem, |a, b| a % b)
    }

    /// Exact for integers with a non-negative exponent, as long as the result fits.
    pub(super) fn power(self, exponent: Number) -> NumberResult {
        if self.to_f64() == 0.0 && exponent.to_f64() < 0.0 {
            return Err("division by zero: zero to a negative power".into());
        }
        let exact_power = |base: i128, exponent: i128| base.checked_pow(u32::try_from(exponent).ok()?);
        self.apply_exact_or_float(exponent, exact_power, f64::powf)
    }

    /// Subtracts from zero, since the smallest 128-bit integer has no positive counterpart.
    pub(super) fn negate(self) -> NumberResult {
        Number::Integer(0).subtract(self)
    }

    pub(super) fn absolute(self) -> NumberResult {
        if self.to_f64() < 0.0 { self.negate() } else { Ok(self) }
    }

    /// Rounds to a number of decimal digits, half away from zero.
    pub(super) fn round(self, digits: Number) -> NumberResult {
        match (self, digits) {
            // An integer has no fraction to round; negative digits round tens, hundreds and so on.
            (Number::Integer(_), Number::Integer(0..)) => Ok(self),
            (_, Number::Integer(digits @ -30..=30)) => {
                let scale = 10_f64.powi(digits as i32);
                let scaled = self.to_f64() * scale;
                // Too large to have such digits.
                if scaled.is_finite() { Number::from_f64(scaled.round() / scale) } else { Ok(self) }
            }
            _ => Err("`round` takes a whole number of digits from -30 to 30".into()),
        }
    }

    /// JSON number; others than integers are rounded to 15 significant digits, which hides artefacts of binary
    /// fractions (0.1 + 0.2). Integers beyond the range of JSON numbers become strings.
    pub(super) fn to_json(self) -> Value {
        match self {
            Number::Integer(integer) => match JsonNumber::from_i128(integer) {
                Some(number) => Value::Number(number),
                None => Value::String(integer.to_string()),
            },
            Number::Real(real) => {
                // Formatting rounds correctly; scaling a float would introduce new errors.
                let rounded: f64 = format!("{real:.14e}").parse().unwrap_or(real);
                match Number::from_f64(rounded) {
                    Ok(Number::Integer(integer)) => Number::Integer(integer).to_json(),
                    _ => JsonNumber::from_f64(rounded).map_or(Value::Null, Value::Number),
                }
            }
        }
    }

    /// Applies the integer operation if both are integers and the result fits, else the float operation.
    fn apply_exact_or_float(
        self,
        other: Number,
        integer_op: impl Fn(i128, i128) -> Option<i128>,
        float_op: impl Fn(f64, f64) -> f64,
    ) -> NumberResult {
        if let (Number::Integer(a), Number::Integer(b)) = (self, other)
            && let Some(result) = integer_op(a, b)
        {
            return Ok(Number::Integer(result));
        }
        Number::from_f64(float_op(self.to_f64(), other.to_f64()))
    }
}
