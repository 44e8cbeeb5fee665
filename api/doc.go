// Package api is Heft's HTTP server.
//
// [New] returns the handler of all paths for a model, [NewServer] an http.Server around it, and
// [Serve] serves until a context ends. The handler has three layers:
//
//   - middleware: time limits for clients, request ids, the access log, panics, allowed hosts and
//     origins ([Access]), API keys, limits of bodies;
//   - the endpoints of the dialects, which are packages of their own (api/openai). Each gives the
//     middleware its routes and the shape of its errors;
//   - the state of the server: /health, /ready, /metrics, /plan, /version, and the page at /.
//
// docs/http.md describes all of it for clients. The package knows no weights and no tokens.
package api
