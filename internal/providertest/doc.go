// Package providertest is the suite that every provider passes: what a queue
// pair and a completion queue must do whatever the device, run against memory
// that plays the device, and against devices.
package providertest
