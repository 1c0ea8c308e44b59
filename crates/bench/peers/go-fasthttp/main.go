// The routes of the bench on fasthttp.
package main

import (
	"encoding/json"
	"os"
	"syscall"
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
		// Whole, however long: as a stream it took 5 % more CPU for a MiB, and some answers did not come.
		call.SetBody(call.PostBody())
	case "/slow":
		block(length(call))
		call.SetBodyString("blocked\n")
	case "/wait":
		time.Sleep(length(call))
		call.SetBodyString("waited\n")
	default:
		call.SetStatusCode(fasthttp.StatusNotFound)
	}
}

func length(call *fasthttp.RequestCtx) time.Duration {
	ms, us := call.QueryArgs().GetUintOrZero("ms"), call.QueryArgs().GetUintOrZero("us")
	return time.Duration(ms)*time.Millisecond + time.Duration(us)*time.Microsecond
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
