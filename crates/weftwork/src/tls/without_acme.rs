//! Stands for ACME in a build without it. No value of these types exists.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;

use super::Choice;
use crate::error::Result;
use crate::message::Handler;

#[derive(Clone, Debug)]
pub(crate) enum Acme {}

#[derive(Debug)]
pub(crate) enum AcmeCertificates {}

#[derive(Debug)]
pub(crate) enum AcmeThread {}

pub(crate) const ACME_TLS_ALPN: &[u8] = &[];

impl Acme {
    pub(crate) fn open(self, _: Arc<CryptoProvider>) -> Result<Arc<AcmeCertificates>> {
        match self {}
    }
}

impl AcmeCertificates {
    pub(crate) fn keys(&self) -> Vec<(String, Arc<CertifiedKey>)> {
        match *self {}
    }

    pub(crate) fn choose(&self, _: &ClientHello<'_>) -> Choice {
        match *self {}
    }

    pub(crate) fn on_change(&self, _: impl Fn() + Send + Sync + 'static) {
        match *self {}
    }

    pub(crate) fn start(self: &Arc<Self>, _: super::Reachable) -> Result<AcmeThread> {
        match **self {}
    }
}

pub(crate) fn answer_challenges(_: &[Arc<AcmeCertificates>], handler: Arc<dyn Handler>) -> Arc<dyn Handler> {
    handler
}
