//! `#[derive(Kind)]` for the parameters of a kind, `#[derive(Parameters)]` for a group of parameters that several
//! kinds share. The generated code is small: code that does not depend on types is in `fxgraph::kind`.

mod field;
mod header;
mod parameters;

use field::Field;
use header::Header;
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{DeriveInput, Error, Result};

/// Declares a kind of block: `#[kind(name = "..", page = "README.md", inputs(..), outputs(..))]`.
///
/// Ports are `inputs("a", "b")`, `inputs("a", optional("b"))` or `inputs(numbered("input"))`. Parameters are the
/// fields, with `#[param(default)]`, `#[param(default = ..)]`, `range = 0..=10`, `unit = "Hz"`, `live`,
/// `flatten` for a group of parameters, and `skip` for a field that is not a parameter. A field without a default must
/// be given, unless it is an `Option`.
#[proc_macro_derive(Kind, attributes(kind, param))]
pub fn kind(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    answer(syn::parse(item).and_then(|item: DeriveInput| {
        let mut problems = Problems::default();
        let header = problems.note(Header::parse(&item));
        let fields = problems.note(Field::all(&item));
        let (Some(header), Some(fields)) = (header, fields) else { return Err(problems.all()) };
        let parameters = parameters::write(&item, &fields);
        let kind = header.write(&item, &fields);
        Ok(quote! { #parameters #kind })
    }))
}

/// Declares a group of parameters, which kinds include with `#[param(flatten)]`.
#[proc_macro_derive(Parameters, attributes(param))]
pub fn parameters(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    answer(syn::parse(item).and_then(|item: DeriveInput| {
        let fields = Field::all(&item)?;
        Ok(parameters::write(&item, &fields))
    }))
}

fn answer(written: Result<TokenStream>) -> proc_macro::TokenStream {
    written.unwrap_or_else(Error::into_compile_error).into()
}

/// Errors of a declaration; all are reported, not only the first.
#[derive(Default)]
struct Problems(Option<Error>);

impl Problems {
    fn note<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                match &mut self.0 {
                    Some(known) => known.combine(error),
                    None => self.0 = Some(error),
                }
                None
            }
        }
    }

    fn all(self) -> Error {
        self.0.unwrap_or_else(|| Error::new(Span::call_site(), "the declaration is wrong"))
    }
}
