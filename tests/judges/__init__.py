"""Third parties that judge Tosaic: Arm's conformance generator, reference model and tosa-opt."""
