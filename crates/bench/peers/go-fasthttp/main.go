// What does fasthttp reach? The routes of the bench.
package main

import (
	"encoding/json"
	"os"
	"time"

	"github.com/valyala/fasthttp"
)

type message struct {
	Message string `json:"message"`
}

func main() {
	server := fasthttp.Server{Handler: answer, MaxRequestBodySize: 16 << 20, Concurrency: 1 << 20}
	panic(server.ListenAndServe("127.0.0.1:" + os.Args[1]))
}

func answer(call *fasthttp.RequestCtx) {
	switch string(call.Path()) {
	case "/health":
		call.SetBodyString("OK")
	case "/json":
		body, _ := json.Marshal(message{"Hello, World!"})
		call.SetContentType("application/json")
		call.SetBody(body)
	case "/echo":
		call.SetBody(call.PostBody())
	case "/slow", "/wait":
		ms := call.QueryArgs().GetUintOrZero("ms")
		time.Sleep(time.Duration(ms) * time.Millisecond)
		call.SetBodyString("slept\n")
	default:
		call.SetStatusCode(fasthttp.StatusNotFound)
	}
}
