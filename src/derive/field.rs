//! A field and its attributes.

use crate::Problems;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, ExprLit, Fields, Lit, LitStr, Result, Token, Type,
};

/// A parameter, or a group of them.
pub struct Field<'a> {
    pub name: &'a Ident,
    pub ty: &'a Type,
    pub doc: String,
    pub default: Option<Expr>,
    /// Minimum and maximum as expressions of type `Option<f64>`.
    pub range: Option<[TokenStream; 2]>,
    pub unit: Option<LitStr>,
    /// Place of the attribute `live`.
    pub live: Option<Span>,
    pub flatten: bool,
    /// Not a parameter: the field always has its default value.
    pub skip: bool,
}

/// Text of the doc comment, without the space before each line.
pub fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
                let text = text.value();
                Some(text.strip_prefix(' ').unwrap_or(&text).trim_end().to_owned())
            }
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

impl<'a> Field<'a> {
    /// All fields of `item`.
    pub fn all(item: &'a DeriveInput) -> Result<Vec<Self>> {
        let Data::Struct(data) = &item.data else {
            return Err(Error::new(item.ident.span(), "parameters must be fields of a struct"));
        };
        if let Some(parameter) = item.generics.params.first() {
            return Err(Error::new(parameter.span(), "a struct of parameters must not be generic"));
        }
        let mut problems = Problems::default();
        let fields: Vec<Self> = match &data.fields {
            Fields::Named(fields) => {
                fields.named.iter().filter_map(|field| problems.note(Self::parse(field))).collect()
            }
            Fields::Unit => Vec::new(),
            Fields::Unnamed(fields) => {
                return Err(Error::new(fields.span(), "parameters must have names"));
            }
        };
        if problems.0.is_some() { Err(problems.all()) } else { Ok(fields) }
    }

    fn parse(field: &'a syn::Field) -> Result<Self> {
        let name = field.ident.as_ref().ok_or_else(|| Error::new(field.span(), "no name"))?;
        let mut this = Self {
            name,
            ty: &field.ty,
            doc: doc(&field.attrs),
            default: None,
            range: None,
            unit: None,
            live: None,
            flatten: false,
            skip: false,
        };
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("param")) {
            attribute.parse_nested_meta(|meta| this.read(&meta))?;
        }
        if this.doc.is_empty() && !this.flatten && !this.skip {
            let message = format!("`{name}` must have a doc comment: users read it");
            return Err(Error::new(name.span(), message));
        }
        Ok(this)
    }

    fn read(&mut self, meta: &syn::meta::ParseNestedMeta<'_>) -> Result<()> {
        if meta.path.is_ident("default") {
            let value = if meta.input.peek(Token![=]) {
                meta.value()?.parse::<Expr>()?
            } else {
                syn::parse_quote!(::core::default::Default::default())
            };
            self.default = Some(match value {
                text @ Expr::Lit(ExprLit { lit: Lit::Str(_), .. }) => {
                    syn::parse_quote_spanned!(text.span()=> #text.into())
                }
                value => value,
            });
        } else if meta.path.is_ident("range") {
            self.range = Some(ends(meta.value()?.parse()?)?);
        } else if meta.path.is_ident("unit") {
            self.unit = Some(meta.value()?.parse()?);
        } else if meta.path.is_ident("live") {
            self.live = Some(meta.path.span());
        } else if meta.path.is_ident("flatten") {
            self.flatten = true;
        } else if meta.path.is_ident("skip") {
            self.skip = true;
        } else {
            return Err(meta.error("use `default`, `range`, `unit`, `live`, `flatten` or `skip`"));
        }
        Ok(())
    }

    /// Name of the constant with the declaration.
    pub fn constant(&self) -> Ident {
        let name = self.name.unraw().to_string().to_uppercase();
        format_ident!("{name}", span = self.name.span())
    }

    /// Name of the variant in the enum of live parameters.
    pub fn variant(&self) -> Ident {
        let name = self.name.unraw().to_string();
        let mut variant = String::new();
        for word in name.split('_') {
            let mut letters = word.chars();
            variant.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            variant.extend(letters);
        }
        format_ident!("{variant}", span = self.name.span())
    }

    pub fn is_optional(&self) -> bool {
        let Type::Path(path) = self.ty else { return false };
        path.path.segments.last().is_some_and(|last| last.ident == "Option")
    }
}

fn ends(range: Expr) -> Result<[TokenStream; 2]> {
    let Expr::Range(syn::ExprRange { start, end, limits, .. }) = range else {
        return Err(Error::new(range.span(), "write a range as `0..=10`, `1..` or `..=10`"));
    };
    if let (Some(end), syn::RangeLimits::HalfOpen(_)) = (&end, limits) {
        return Err(Error::new(end.span(), "a range includes its end: write `..=`"));
    }
    let none = quote!(::core::option::Option::None);
    let some =
        |end: Box<Expr>| quote_spanned!(end.span()=> ::core::option::Option::Some((#end) as f64));
    Ok([start, end].map(|end| end.map_or(none.clone(), some)))
}
