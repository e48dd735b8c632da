//! Implementation of `Parameters`.

use crate::field::Field;
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::DeriveInput;
use syn::ext::IdentExt;
use syn::spanned::Spanned;

pub fn write(item: &DeriveInput, fields: &[Field<'_>]) -> TokenStream {
    let ident = &item.ident;
    let names: Vec<_> = fields.iter().map(|field| field.name).collect();
    let constants = fields.iter().filter(|field| !field.flatten && !field.skip).map(constant);
    let described = fields.iter().filter(|field| !field.skip).map(described);
    let read = fields.iter().map(read);
    let (live, live_type) = live(item, fields);
    quote! {
        #live
        #[allow(clippy::all, clippy::pedantic)]
        const _: () = {
            #(#constants)*
            impl ::fxgraph::kind::Parameters for #ident {
                type Live = #live_type;
                fn fields(__fields: &mut ::std::vec::Vec<::fxgraph::kind::Field>) { #(#described)* }
                // Read all fields before the first error returns.
                fn read(
                    __reader: &mut ::fxgraph::kind::ParametersReader<'_>,
                ) -> ::core::option::Option<Self> {
                    #(#read)*
                    ::core::option::Option::Some(Self { #(#names: #names?),* })
                }
            }
        };
    }
}

fn constant(field: &Field<'_>) -> TokenStream {
    let (constant, name, doc) = (field.constant(), field.name.unraw().to_string(), &field.doc);
    let unit = field.unit.as_ref().map_or(
        quote!(::core::option::Option::None),
        |unit| quote!(::core::option::Option::Some(#unit)),
    );
    let range = if let Some([minimum, maximum]) = &field.range {
        quote! {
            ::core::option::Option::Some(
                ::fxgraph::kind::Range { minimum: #minimum, maximum: #maximum }
            )
        }
    } else {
        quote!(::core::option::Option::None)
    };
    let live = field.live.is_some();
    quote! {
        static #constant: ::fxgraph::kind::Param =
            ::fxgraph::kind::Param { name: #name, doc: #doc, unit: #unit, range: #range, live: #live };
    }
}

fn described(field: &Field<'_>) -> TokenStream {
    let (ty, constant) = (field.ty, field.constant());
    if field.flatten {
        // A group with live parameters must also be marked `live` where it is used.
        let has_none = field.live.is_none().then(|| {
            quote_spanned! {ty.span()=>
                let _: fn(<#ty as ::fxgraph::kind::Parameters>::Live) -> ::fxgraph::kind::NoLive =
                    |live| live;
            }
        });
        return quote_spanned!(ty.span()=> #has_none <#ty as ::fxgraph::kind::Parameters>::fields(__fields););
    }
    let described = match &field.default {
        Some(default) => quote_spanned!(ty.span()=> with_default::<#ty>(&#constant, &{ #default })),
        None if field.is_optional() => quote_spanned!(ty.span()=> optional::<#ty>(&#constant)),
        None => quote_spanned!(ty.span()=> required::<#ty>(&#constant)),
    };
    quote!(__fields.push(::fxgraph::kind::Field::#described);)
}

fn read(field: &Field<'_>) -> TokenStream {
    let (name, ty, constant) = (field.name, field.ty, field.constant());
    if field.skip {
        return quote!(let #name = ::core::option::Option::Some(::core::default::Default::default()););
    }
    if field.flatten {
        return quote_spanned!(ty.span()=> let #name = <#ty as ::fxgraph::kind::Parameters>::read(__reader););
    }
    let read = match &field.default {
        Some(default) => quote_spanned!(ty.span()=> or::<#ty>(&#constant, || #default)),
        None if field.is_optional() => {
            quote_spanned!(ty.span()=> or::<#ty>(&#constant, || ::core::option::Option::None))
        }
        None => quote_spanned!(ty.span()=> required::<#ty>(&#constant)),
    };
    let range = field.range.is_some().then(
        || quote_spanned!(ty.span()=> let #name = __reader.ranged::<#ty>(&#constant, #name);),
    );
    quote! { let #name = __reader.#read; #range }
}

/// Enum of the live parameters, if any, and its type.
fn live(item: &DeriveInput, fields: &[Field<'_>]) -> (Option<TokenStream>, TokenStream) {
    let live: Vec<_> = fields.iter().filter(|field| field.live.is_some()).collect();
    if live.is_empty() {
        return (None, quote!(::fxgraph::kind::NoLive));
    }
    let ident = format_ident!("{}Live", item.ident);
    let vis = &item.vis;
    let doc = format!("Live parameters of [`{}`].", item.ident);
    let declared = live.iter().map(|field| {
        let (variant, ty, doc) = (field.variant(), field.ty, &field.doc);
        if field.flatten {
            quote! {
                #[doc = "A parameter of this group."]
                #variant(<#ty as ::fxgraph::kind::Parameters>::Live),
            }
        } else {
            quote! { #[doc = #doc] #variant, }
        }
    });
    let named = live.iter().map(|field| {
        let (variant, ty, name) = (field.variant(), field.ty, field.name.unraw().to_string());
        if field.flatten {
            quote! {
                if let ::core::option::Option::Some(live) =
                    <<#ty as ::fxgraph::kind::Parameters>::Live as ::fxgraph::kind::LiveName>::named(name)
                {
                    return ::core::option::Option::Some(Self::#variant(live));
                }
            }
        } else {
            quote! {
                if name == #name {
                    return ::core::option::Option::Some(Self::#variant);
                }
            }
        }
    });
    let written = quote! {
        #[doc = #doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #vis enum #ident { #(#declared)* }

        impl ::fxgraph::kind::LiveName for #ident {
            fn named(name: &str) -> ::core::option::Option<Self> {
                #(#named)*
                ::core::option::Option::None
            }
        }
    };
    (Some(written), quote!(#ident))
}
