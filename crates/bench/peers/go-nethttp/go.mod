module weftwork.example/go-nethttp

go 1.22
