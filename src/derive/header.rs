//! Implementation of `Kind` from `#[kind(..)]`.

use crate::field::Field;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::Parse;
use syn::{DeriveInput, Error, LitStr, Result, Token};

pub struct Header {
    name: LitStr,
    page: LitStr,
    inputs: TokenStream,
    outputs: TokenStream,
    examples: Vec<LitStr>,
}

impl Header {
    pub fn parse(item: &DeriveInput) -> Result<Self> {
        let (mut name, mut page) = (None, None);
        let (mut inputs, mut outputs) = (no_ports(), no_ports());
        let mut examples = Vec::new();
        for attribute in item.attrs.iter().filter(|attribute| attribute.path().is_ident("kind")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("name") {
                    name = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("page") {
                    page = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("inputs") {
                    inputs = ports(&meta)?;
                } else if meta.path.is_ident("outputs") {
                    outputs = ports(&meta)?;
                } else if meta.path.is_ident("examples") {
                    let content;
                    syn::parenthesized!(content in meta.input);
                    examples.extend(content.parse_terminated(<LitStr as Parse>::parse, Token![,])?);
                } else {
                    let keys = "use `name`, `page`, `inputs`, `outputs` or `examples`";
                    return Err(meta.error(keys));
                }
                Ok(())
            })?;
        }
        let missing = |what| {
            Error::new(item.ident.span(), format!("a kind needs `#[kind({what} = \"..\")]`"))
        };
        let name = name.ok_or_else(|| missing("name"))?;
        let page = page.ok_or_else(|| missing("page"))?;
        Ok(Self { name, page, inputs, outputs, examples })
    }

    pub fn write(&self, item: &DeriveInput, fields: &[Field<'_>]) -> TokenStream {
        let Self { name, page, inputs, outputs, examples } = self;
        let ident = &item.ident;
        // An error about a missing `LiveKind` points at the first live parameter.
        let live_value = if let Some(at) = fields.iter().find_map(|field| field.live) {
            quote_spanned! {at=>
                let value = <Self as ::fxgraph::kind::LiveKind>::live_value(new, parameter, running)?;
                ::core::result::Result::Ok(::std::boxed::Box::new(value))
            }
        } else {
            quote! { match parameter {} }
        };
        let live_statement = if fields.iter().any(|field| field.live.is_some()) {
            quote! { <Self as ::fxgraph::kind::LiveKind>::live_statement(new, parameter, effect) }
        } else {
            quote! { match parameter {} }
        };
        let has_timestamps = if fields.iter().any(|field| field.live.is_some()) {
            quote! { <Self as ::fxgraph::kind::LiveKind>::has_timestamps(new, parameter) }
        } else {
            quote! { match parameter {} }
        };
        let has_reference = quote_spanned! {ident.span()=>
            ::fxgraph::kind::has_reference::<#ident>()
        };
        quote! {
            const _: () = {
                impl ::fxgraph::kind::Kind for #ident {
                    const NAME: &'static str = #name;
                    const PAGE: &'static str = ::core::include_str!(#page);
                    const INPUTS: ::fxgraph::kind::PortNames = #inputs;
                    const OUTPUTS: ::fxgraph::kind::PortNames = #outputs;
                    const EXAMPLES: &'static [&'static str] = &[#(::core::include_str!(#examples)),*];

                    #[allow(unused_variables)]
                    fn live_value(
                        new: &::fxgraph::kind::Configured<Self>,
                        parameter: Self::Live,
                        running: &::fxgraph::kind::Configured<Self>,
                    ) -> ::core::result::Result<::fxgraph::changes::LiveValue, ::fxgraph::BlockError>
                    where
                        Self: ::fxgraph::kind::KindSpec,
                    {
                        #live_value
                    }

                    #[allow(unused_variables)]
                    fn live_statement(
                        new: &::fxgraph::kind::Configured<Self>,
                        parameter: Self::Live,
                        effect: &::fxgraph::kind::Effect,
                    ) -> ::core::option::Option<::fxgraph::kind::serde_json::Value>
                    where
                        Self: ::fxgraph::kind::KindSpec,
                    {
                        #live_statement
                    }

                    #[allow(unused_variables)]
                    fn has_timestamps(
                        new: &::fxgraph::kind::Configured<Self>,
                        parameter: Self::Live,
                    ) -> bool
                    where
                        Self: ::fxgraph::kind::KindSpec,
                    {
                        #has_timestamps
                    }
                }
                const _: () = #has_reference;

                impl<'de> ::fxgraph::kind::serde::Deserialize<'de> for #ident {
                    fn deserialize<D: ::fxgraph::kind::serde::Deserializer<'de>>(
                        deserializer: D,
                    ) -> ::core::result::Result<Self, D::Error> {
                        ::fxgraph::kind::deserialize(deserializer)
                    }
                }
            };
        }
    }
}

fn no_ports() -> TokenStream {
    quote!(::fxgraph::kind::PortNames::Fixed(&[]))
}

/// Parses `("a", "b")`, `("a", optional("b"))` or `(numbered("input"))`.
fn ports(meta: &syn::meta::ParseNestedMeta<'_>) -> Result<TokenStream> {
    let content;
    syn::parenthesized!(content in meta.input);
    let (mut names, mut required, mut numbered) = (Vec::<LitStr>::new(), 0_usize, None);
    while !content.is_empty() {
        if content.peek(LitStr) {
            names.push(content.parse()?);
            required = names.len();
        } else {
            let word: Ident = content.parse()?;
            let inner;
            syn::parenthesized!(inner in content);
            match word.to_string().as_str() {
                "optional" => names.push(inner.parse()?),
                "numbered" => numbered = Some(inner.parse::<LitStr>()?),
                _ => return Err(unknown_port(word.span())),
            }
        }
        if !content.is_empty() {
            content.parse::<Token![,]>()?;
        }
    }
    Ok(match numbered {
        Some(prefix) => quote!(::fxgraph::kind::PortNames::Numbered(#prefix)),
        None if required == names.len() => {
            quote!(::fxgraph::kind::PortNames::Fixed(&[#(#names),*]))
        }
        None => {
            quote!(::fxgraph::kind::PortNames::Optional { names: &[#(#names),*], required: #required })
        }
    })
}

fn unknown_port(at: Span) -> Error {
    Error::new(at, "ports are \"name\", optional(\"name\") or numbered(\"prefix\")")
}
