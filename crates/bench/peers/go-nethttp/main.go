// The routes of the bench on net/http.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"
)

type message struct {
	Message string `json:"message"`
}

func main() {
	http.HandleFunc("GET /health", func(out http.ResponseWriter, _ *http.Request) { io.WriteString(out, "OK") })
	http.HandleFunc("GET /json", func(out http.ResponseWriter, _ *http.Request) {
		body, _ := json.Marshal(message{"Hello, World!"})
		out.Header().Set("Content-Type", "application/json")
		out.Write(body)
	})
	http.HandleFunc("POST /echo", func(out http.ResponseWriter, request *http.Request) {
		// A long body goes back while it comes, as with weft.
		if request.ContentLength > 64<<10 {
			http.NewResponseController(out).EnableFullDuplex()
			out.Header().Set("Content-Length", strconv.FormatInt(request.ContentLength, 10))
			io.Copy(out, request.Body)
			return
		}
		body, err := io.ReadAll(request.Body)
		if err != nil {
			out.WriteHeader(http.StatusBadRequest)
			return
		}
		out.Header().Set("Content-Length", strconv.Itoa(len(body)))
		out.Write(body)
	})
	http.HandleFunc("POST /upload", func(out http.ResponseWriter, request *http.Request) {
		bytes, err := io.Copy(io.Discard, request.Body)
		if err != nil {
			out.WriteHeader(http.StatusBadRequest)
			return
		}
		out.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(out, "{\"bytes\":%d,\"files\":[]}", bytes)
	})
	pause := func(did string, pause func(time.Duration)) http.HandlerFunc {
		return func(out http.ResponseWriter, request *http.Request) {
			query := request.URL.Query()
			ms, _ := strconv.Atoi(query.Get("ms"))
			us, _ := strconv.Atoi(query.Get("us"))
			pause(time.Duration(ms)*time.Millisecond + time.Duration(us)*time.Microsecond)
			io.WriteString(out, did)
		}
	}
	http.HandleFunc("GET /slow", pause("blocked\n", block))
	http.HandleFunc("GET /wait", pause("waited\n", time.Sleep))
	address := "127.0.0.1:" + os.Args[1]
	// Over TLS there are files, too.
	if len(os.Args) > 3 {
		http.Handle("GET /", http.FileServer(http.Dir(os.Args[3])))
		panic(http.ListenAndServeTLS(address, os.Args[2]+"/cert.pem", os.Args[2]+"/key.pem", nil))
	}
	panic(http.ListenAndServe(address, nil))
}

// A call that blocks: it holds its thread, where time.Sleep would park the goroutine.
func block(length time.Duration) {
	// For nothing at all the kernel would still let its timer slack pass, 50 us.
	if length <= 0 {
		return
	}
	left := syscall.NsecToTimespec(length.Nanoseconds())
	for syscall.Nanosleep(&left, &left) == syscall.EINTR {
	}
}
