//! A site of a hundred routes with requests for it, for the benchmark and the tests.

use weftwork::prelude::*;

// The fields of a route are compared and never read.
#[allow(dead_code)]
#[derive(Routes, Debug, PartialEq)]
pub(crate) enum Hundred {
    #[get("/users")]
    Users,
    #[post("/users")]
    NewUser,
    #[get("/users/search?{q}")]
    FindUsers { q: Option<String> },
    #[get("/users/{id}")]
    User { id: u64 },
    #[put("/users/{id}")]
    ChangeUser { id: u64 },
    #[delete("/users/{id}")]
    RemoveUser { id: u64 },
    #[get("/users/{id}/notes")]
    UserNotes { id: u64 },
    #[get("/users/{id}/notes/{note}")]
    UserNote { id: u64, note: u32 },
    #[get("/teams")]
    Teams,
    #[post("/teams")]
    NewTeam,
    #[get("/teams/search?{q}")]
    FindTeams { q: Option<String> },
    #[get("/teams/{id}")]
    Team { id: u64 },
    #[put("/teams/{id}")]
    ChangeTeam { id: u64 },
    #[delete("/teams/{id}")]
    RemoveTeam { id: u64 },
    #[get("/teams/{id}/notes")]
    TeamNotes { id: u64 },
    #[get("/teams/{id}/notes/{note}")]
    TeamNote { id: u64, note: u32 },
    #[get("/orders")]
    Orders,
    #[post("/orders")]
    NewOrder,
    #[get("/orders/search?{q}")]
    FindOrders { q: Option<String> },
    #[get("/orders/{id}")]
    Order { id: u64 },
    #[put("/orders/{id}")]
    ChangeOrder { id: u64 },
    #[delete("/orders/{id}")]
    RemoveOrder { id: u64 },
    #[get("/orders/{id}/notes")]
    OrderNotes { id: u64 },
    #[get("/orders/{id}/notes/{note}")]
    OrderNote { id: u64, note: u32 },
    #[get("/invoices")]
    Invoices,
    #[post("/invoices")]
    NewInvoice,
    #[get("/invoices/search?{q}")]
    FindInvoices { q: Option<String> },
    #[get("/invoices/{id}")]
    Invoice { id: u64 },
    #[put("/invoices/{id}")]
    ChangeInvoice { id: u64 },
    #[delete("/invoices/{id}")]
    RemoveInvoice { id: u64 },
    #[get("/invoices/{id}/notes")]
    InvoiceNotes { id: u64 },
    #[get("/invoices/{id}/notes/{note}")]
    InvoiceNote { id: u64, note: u32 },
    #[get("/products")]
    Products,
    #[post("/products")]
    NewProduct,
    #[get("/products/search?{q}")]
    FindProducts { q: Option<String> },
    #[get("/products/{id}")]
    Product { id: u64 },
    #[put("/products/{id}")]
    ChangeProduct { id: u64 },
    #[delete("/products/{id}")]
    RemoveProduct { id: u64 },
    #[get("/products/{id}/notes")]
    ProductNotes { id: u64 },
    #[get("/products/{id}/notes/{note}")]
    ProductNote { id: u64, note: u32 },
    #[get("/reviews")]
    Reviews,
    #[post("/reviews")]
    NewReview,
    #[get("/reviews/search?{q}")]
    FindReviews { q: Option<String> },
    #[get("/reviews/{id}")]
    Review { id: u64 },
    #[put("/reviews/{id}")]
    ChangeReview { id: u64 },
    #[delete("/reviews/{id}")]
    RemoveReview { id: u64 },
    #[get("/reviews/{id}/notes")]
    ReviewNotes { id: u64 },
    #[get("/reviews/{id}/notes/{note}")]
    ReviewNote { id: u64, note: u32 },
    #[get("/tickets")]
    Tickets,
    #[post("/tickets")]
    NewTicket,
    #[get("/tickets/search?{q}")]
    FindTickets { q: Option<String> },
    #[get("/tickets/{id}")]
    Ticket { id: u64 },
    #[put("/tickets/{id}")]
    ChangeTicket { id: u64 },
    #[delete("/tickets/{id}")]
    RemoveTicket { id: u64 },
    #[get("/tickets/{id}/notes")]
    TicketNotes { id: u64 },
    #[get("/tickets/{id}/notes/{note}")]
    TicketNote { id: u64, note: u32 },
    #[get("/projects")]
    Projects,
    #[post("/projects")]
    NewProject,
    #[get("/projects/search?{q}")]
    FindProjects { q: Option<String> },
    #[get("/projects/{id}")]
    Project { id: u64 },
    #[put("/projects/{id}")]
    ChangeProject { id: u64 },
    #[delete("/projects/{id}")]
    RemoveProject { id: u64 },
    #[get("/projects/{id}/notes")]
    ProjectNotes { id: u64 },
    #[get("/projects/{id}/notes/{note}")]
    ProjectNote { id: u64, note: u32 },
    #[get("/events")]
    Events,
    #[post("/events")]
    NewEvent,
    #[get("/events/search?{q}")]
    FindEvents { q: Option<String> },
    #[get("/events/{id}")]
    Event { id: u64 },
    #[put("/events/{id}")]
    ChangeEvent { id: u64 },
    #[delete("/events/{id}")]
    RemoveEvent { id: u64 },
    #[get("/events/{id}/notes")]
    EventNotes { id: u64 },
    #[get("/events/{id}/notes/{note}")]
    EventNote { id: u64, note: u32 },
    #[get("/devices")]
    Devices,
    #[post("/devices")]
    NewDevice,
    #[get("/devices/search?{q}")]
    FindDevices { q: Option<String> },
    #[get("/devices/{id}")]
    Device { id: u64 },
    #[put("/devices/{id}")]
    ChangeDevice { id: u64 },
    #[delete("/devices/{id}")]
    RemoveDevice { id: u64 },
    #[get("/devices/{id}/notes")]
    DeviceNotes { id: u64 },
    #[get("/devices/{id}/notes/{note}")]
    DeviceNote { id: u64, note: u32 },
    #[get("/health")]
    HealthPage,
    #[get("/ready")]
    ReadyPage,
    #[get("/login")]
    LoginPage,
    #[get("/logout")]
    LogoutPage,
    #[get("/about")]
    AboutPage,
    #[get("/contact")]
    ContactPage,
    #[get("/pricing")]
    PricingPage,
    #[get("/terms")]
    TermsPage,
    #[get("/privacy")]
    PrivacyPage,
    #[get("/status")]
    StatusPage,
    #[get("/metrics")]
    MetricsPage,
    #[get("/robots.txt")]
    RobotsTxtPage,
    #[get("/favicon.ico")]
    FaviconIcoPage,
    #[get("/docs")]
    DocsPage,
    #[get("/blog")]
    BlogPage,
    #[get("/help")]
    HelpPage,
    #[get("/jobs")]
    JobsPage,
    #[get("/press")]
    PressPage,
    #[get("/")]
    Home,
    #[get("/assets/{*path}")]
    Asset { path: String },
}
