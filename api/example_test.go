package api_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
)

// A server of the embedded demo model; dispatch.Open opens one in a folder.
func ExampleServe() {
	model, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{Threads: 1, KVTokens: 512})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	generator, err := generate.New(model, generate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer generator.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop() // at once, so that the example ends
	fmt.Println(api.Serve(ctx, listener, generator, api.Options{}))
	// Output:
	// <nil>
}

// The handler can be part of a larger server.
func ExampleNew() {
	model, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{Threads: 1, KVTokens: 512})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	generator, err := generate.New(model, generate.Options{Name: "small"})
	if err != nil {
		log.Fatal(err)
	}
	defer generator.Close()
	handler := api.New(generator, api.Options{APIKeys: []string{"secret"}})

	r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/completions", strings.NewReader(`{"model": "small", "prompt": "Hi", "max_tokens": 1}`))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Println(w.Code)
	r = httptest.NewRequest(http.MethodGet, "http://localhost/version", nil)
	w = httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	body, _ := io.ReadAll(w.Body)
	fmt.Println(w.Code, strings.TrimSpace(string(body)))
	// Output:
	// 401
	// 200 {"version":""}
}
