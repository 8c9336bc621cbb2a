// torchaudio.lib._torchaudio
#include <Python.h>

#include <torch/extension.h>

#include "overdrive.h"

namespace torchaudio {

void overdrive_cpu(size_t count, float* samples, float gain) {
    for (size_t i = 0; i < count; i++) {
        float x = samples[i] * gain;
        x = x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x;
        samples[i] = x - x * x * x / 3.0f;
    }
}

}  // namespace torchaudio

namespace {

bool read(PyObject* list, at::Numbers& samples) {
    for (size_t i = 0; i < samples.size; i++) {
        samples.data[i] = static_cast<float>(PyFloat_AsDouble(PyList_GET_ITEM(list, i)));
    }
    return PyErr_Occurred() == nullptr;
}

PyObject* write(const at::Numbers& samples) {
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(samples.size));
    for (size_t i = 0; list != nullptr && i < samples.size; i++) {
        PyList_SET_ITEM(list, i, PyFloat_FromDouble(samples.data[i]));
    }
    return list;
}

PyObject* overdrive(PyObject*, PyObject* arguments) {
    PyObject* list;
    float gain;
    if (!PyArg_ParseTuple(arguments, "O!f", &PyList_Type, &list, &gain)) return nullptr;
    at::Numbers samples(PyList_GET_SIZE(list));
    if (!read(list, samples)) return nullptr;
    torchaudio::overdrive_cpu(samples.size, samples.data, gain);
    return write(samples);
}

PyObject* overdrive_hip(PyObject*, PyObject* arguments) {
#ifdef USE_CUDA
    PyObject* list;
    float gain;
    if (!PyArg_ParseTuple(arguments, "O!f", &PyList_Type, &list, &gain)) return nullptr;
    at::Numbers samples(PyList_GET_SIZE(list));
    if (!read(list, samples)) return nullptr;
    const int error = at::cuda::device_count() ? torchaudio::overdrive_cuda(samples.size, samples.data, gain) : 100;
    PyObject* result = write(samples);
    return result == nullptr ? nullptr : Py_BuildValue("iN", error, result);
#else
    (void)arguments;
    PyErr_SetString(PyExc_RuntimeError, "built without GPU kernels");
    return nullptr;
#endif
}

PyMethodDef methods[] = {
    {"overdrive", overdrive, METH_VARARGS, "(samples, gain) -> samples, on the host"},
    {"overdrive_hip", overdrive_hip, METH_VARARGS, "(samples, gain) -> (HIP's error number, samples), on the GPU"},
    {},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_torchaudio", nullptr, -1, methods};

}  // namespace

PyMODINIT_FUNC PyInit__torchaudio() { return PyModule_Create(&module); }
