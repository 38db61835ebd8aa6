package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	repository    = "https://" + mainModule
	buildType     = repository + "/blob/main/docs/deploy.md"
	builderID     = repository + "/tree/main/dist"
	predicateType = "https://slsa.dev/provenance/v1"
)

// provenance writes a statement of what the files of the release were built from, as SLSA defines it. It does not
// depend on the machine, as the files do not, and names none. The signature of a release says where it was built.
func (r *release) provenance(architectures []string, modules []*module) error {
	predicate, err := r.predicate(architectures, modules)
	if err != nil {
		return err
	}
	s := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: predicateType, Predicate: predicate}
	for _, name := range slices.Sorted(slices.Values(r.files)) {
		data, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		s.Subject = append(s.Subject, &intoto.ResourceDescriptor{Name: name,
			Digest: map[string]string{"sha256": fmt.Sprintf("%x", sha256.Sum256(data))}})
	}
	if err := s.Validate(); err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	b, err := protojson.Marshal(s)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := json.Indent(&text, b, "", "  "); err != nil { // it also removes the random spaces of Marshal
		return err
	}
	text.WriteByte('\n')
	return r.write("goverbs-"+r.version+".provenance.json", text.Bytes())
}

// predicate returns what SLSA defines.
func (r *release) predicate(architectures []string, modules []*module) (*structpb.Struct, error) {
	var list []any
	for _, a := range architectures {
		list = append(list, a)
	}
	parameters, err := structpb.NewStruct(map[string]any{"version": r.version, "architectures": list})
	if err != nil {
		return nil, err
	}
	p := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{BuildType: buildType, ExternalParameters: parameters,
			ResolvedDependencies: []*intoto.ResourceDescriptor{{Uri: "git+" + repository,
				Digest: map[string]string{"gitCommit": r.commit}}}},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: builderID}},
	}
	for _, m := range modules[1:] { // the first is that of the repository
		d := &intoto.ResourceDescriptor{Uri: m.purl()}
		if m.sum != "" {
			hash, err := m.dirHash()
			if err != nil {
				return nil, err
			}
			d.Digest = map[string]string{"dirHash": hash}
		}
		p.BuildDefinition.ResolvedDependencies = append(p.BuildDefinition.ResolvedDependencies, d)
	}
	if err := errors.Join(p.BuildDefinition.Validate(), p.RunDetails.Validate()); err != nil {
		return nil, fmt.Errorf("provenance: %w", err)
	}
	b, err := protojson.Marshal(p)
	if err != nil {
		return nil, err
	}
	s := new(structpb.Struct)
	return s, protojson.Unmarshal(b, s)
}
