// Go's net/http against a server over TLS: client.go PORT CA FILES.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func must(is bool, what string, values ...any) {
	if !is {
		fmt.Fprintln(os.Stderr, what, fmt.Sprint(values...))
		os.Exit(1)
	}
}

func main() {
	url, files := "https://localhost:"+os.Args[1], os.Args[3]
	pem, err := os.ReadFile(os.Args[2])
	must(err == nil, "CA", err)
	roots := x509.NewCertPool()
	must(roots.AppendCertsFromPEM(pem), "CA", os.Args[2])
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		// The last one is what this version of Go offers by itself: with the post-quantum key exchange.
		for _, curves := range [][]tls.CurveID{{tls.X25519}, {tls.CurveP256}, {tls.CurveP384}, nil} {
			config := &tls.Config{
				RootCAs: roots, MinVersion: version, MaxVersion: version, CurvePreferences: curves,
				ClientSessionCache: tls.NewLRUClientSessionCache(8),
			}
			for _, resumed := range []bool{false, true} {
				client := &http.Client{Transport: &http.Transport{TLSClientConfig: config.Clone()}, Timeout: 10 * time.Second}
				for at, name := range []string{"hello.txt", "1m.bin", "hello.txt"} {
					answer, err := client.Get(url + "/" + name)
					must(err == nil, "GET", name, err)
					body, err := io.ReadAll(answer.Body)
					answer.Body.Close()
					want, _ := os.ReadFile(files + "/" + name)
					must(err == nil && answer.StatusCode == 200 && bytes.Equal(body, want), name, answer.Status, err)
					must(answer.TLS.Version == version, "version", answer.TLS.Version)
					must(at > 0 || answer.TLS.DidResume == resumed, "resumed ", version, resumed)
				}
				client.CloseIdleConnections()
			}
		}
	}
	other := &tls.Config{RootCAs: roots, ServerName: "other.example"}
	_, err = tls.Dial("tcp", "127.0.0.1:"+os.Args[1], other)
	must(err != nil, "another name is taken")
}
