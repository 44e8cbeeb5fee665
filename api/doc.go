// Package api is Heft's HTTP server.
//
// [New] returns the handler of all paths for a model. [NewServer] returns an http.Server with that
// handler, and [Serve] serves until a context ends. The handler has three layers:
//
//   - middleware: time limits for clients, request ids, the access log, panics, allowed hosts and
//     origins ([Access]), API keys, limits of bodies;
//   - the endpoints of the dialects, which are packages of their own (such as api/openai). Each
//     gives the middleware its routes and the form of its errors;
//   - the state of the server: /health, /ready, /metrics, /plan, /version, and the page at /.
//
// docs/http.md describes the HTTP API for clients. The package does not depend on weights or
// tokens.
package api
