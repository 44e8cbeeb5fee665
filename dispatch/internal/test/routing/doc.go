// Package routing tests recordings of which experts tokens select, and what package dispatch
// predicts from them.
package routing
