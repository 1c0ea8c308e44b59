//! The set of methods that a path allows.

use std::fmt;

use http::{Method, StatusCode, header};

use crate::app::routes::{MethodFilter, allow, other_method};
use crate::message::{OF_CONTENT, Request, Response};

/// Methods for an `Allow` field. Methods with a constant come first.
pub(super) struct Allowed {
    methods: MethodFilter,
    others: Vec<Method>,
}

impl Allowed {
    pub(super) fn none() -> Allowed {
        Allowed { methods: MethodFilter::NONE, others: Vec::new() }
    }

    pub(super) fn is_none(&self) -> bool {
        self.methods == MethodFilter::NONE && self.others.is_empty()
    }

    /// Adds the methods that a route for `method` answers. `None` stands for any method.
    pub(super) fn add_route(&mut self, method: Option<&Method>) {
        match method {
            None => self.methods = MethodFilter::ANY,
            Some(&Method::GET) => {
                self.add(&Method::GET);
                self.add(&Method::HEAD);
            }
            Some(method) => self.add(method),
        }
    }

    /// Adds these methods to the `Allow` field of another handler's response for the same path.
    pub(super) fn join(mut self, mut response: Response, req: &Request<'_>) -> Response {
        let names = response.header(header::ALLOW).filter(|_| !self.is_none());
        let Some(names) = names.map(str::to_owned) else { return response };
        let named = names.split(',').filter_map(|name| Method::from_bytes(name.trim().as_bytes()).ok());
        named.for_each(|method| self.add(&method));
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            self.add(&Method::OPTIONS);
            // Only the parts about methods are replaced. Middleware around the mount, for example `Cors`, may
            // have added other fields.
            let told = other_method(&self, req);
            OF_CONTENT.iter().for_each(|name| drop(response.remove_header(name)));
            response.status = told.status;
            (response.content_type, response.payload) = (told.content_type, told.payload);
        }
        response.set_header(header::ALLOW, allow(&self));
        response
    }

    /// Returns the response to a method that is not allowed. OPTIONS gets a success, so `Allow` lists OPTIONS
    /// too.
    pub(super) fn refuse(mut self, req: &Request<'_>) -> Response {
        self.add(&Method::OPTIONS);
        other_method(&self, req)
    }

    fn add(&mut self, method: &Method) {
        let filter = MethodFilter::of(method);
        if filter.is_named() {
            self.methods = self.methods.or(filter);
        } else if !self.others.contains(method) {
            self.others.push(method.clone());
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.methods)?;
        let mut between = if self.methods == MethodFilter::NONE { "" } else { ", " };
        for method in &self.others {
            write!(f, "{between}{method}")?;
            between = ", ";
        }
        Ok(())
    }
}
