package main

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const instance = "app.kubernetes.io/instance"

// resourceOf names the resource whose pod has changed.
func resourceOf(_ context.Context, pod client.Object) []reconcile.Request {
	name := pod.GetLabels()[instance]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}}}
}

// admit lets every pod that runs pass its readiness gate.
func (r *Reconciler) admit(ctx context.Context, resource *unstructured.Unstructured) error {
	var pods corev1.PodList
	err := r.List(ctx, &pods,
		client.InNamespace(resource.GetNamespace()), client.MatchingLabels{instance: resource.GetName()})
	if err != nil {
		return err
	}
	for index := range pods.Items {
		pod := &pods.Items[index]
		if pod.DeletionTimestamp != nil || !has(pod, corev1.ContainersReady) {
			continue
		}
		for _, gate := range pod.Spec.ReadinessGates {
			if has(pod, gate.ConditionType) {
				continue
			}
			if err := r.pass(ctx, pod, gate.ConditionType); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Reconciler) pass(ctx context.Context, pod *corev1.Pod, gate corev1.PodConditionType) error {
	condition := map[string]any{
		"type": gate, "status": corev1.ConditionTrue,
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": pod.Name, "namespace": pod.Namespace, "uid": pod.UID},
		"status":   map[string]any{"conditions": []any{condition}},
	})
	if err != nil {
		return err
	}
	patch := client.RawPatch(types.ApplyPatchType, body)
	return r.Status().Patch(ctx, pod, patch, client.FieldOwner(fieldManager), client.ForceOwnership)
}

func has(pod *corev1.Pod, condition corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(one corev1.PodCondition) bool {
		return one.Type == condition && one.Status == corev1.ConditionTrue
	})
}
